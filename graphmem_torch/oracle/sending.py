"""One request to chat completions, and what of its reply is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphmem_torch.oracle.asking import Reply
from graphmem_torch.oracle.question import clean

__all__ = ["Sender"]


class Sender:
    """Sends through an `AsyncOpenAI`; `options` are fields of each request, None leaves one out."""

    def __init__(self, api: Any, model: str, options: Mapping[str, Any]) -> None:
        self.api, self.model = api, model
        # A model that takes one temperature only refuses the field; whoever set it is told so.
        self._default = {} if "temperature" in options else {"temperature": 0.0}
        self._options = options
        self._limit = "max_tokens"

    async def __call__(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int | None,
        schema: Mapping[str, Any] | None,
    ) -> Reply:
        """The reply to messages; raises what goes wrong, and ValueError where it is no reply."""
        fields = {self._limit: max_tokens, **self._default, **self._options}
        if schema is not None:
            held = {"name": "answer", "strict": True, "schema": schema}
            fields["response_format"] = {"type": "json_schema", "json_schema": held}
        # In extra_body a field need not be one that the installed version of the package knows.
        body = {name: value for name, value in fields.items() if value is not None}
        response = await self.api.chat.completions.create(
            model=self.model, messages=list(messages), extra_body=body
        )
        try:
            text = response.choices[0].message.content
        except (AttributeError, IndexError, TypeError, KeyError) as error:
            raise ValueError(f"no chat completion: {response!r:.120}") from error
        usage = getattr(response, "usage", None)
        return Reply(
            clean(text) if isinstance(text, str) else "",
            _whole(getattr(usage, "prompt_tokens", None)),
            _whole(getattr(usage, "completion_tokens", None)),
        )

    def adapt(self, error: Exception) -> bool:
        """Leaves the temperature out, or renames the limit, as OpenAI's newer models demand."""
        refused = getattr(error, "param", None)
        if refused == "temperature" and "temperature" not in self._options:
            self._default = {}
            return True
        if refused == "max_tokens":
            self._limit = "max_completion_tokens"
            return True
        return False


def _whole(number: object) -> int:
    return number if isinstance(number, int) else 0
