"""Servers with OpenAI's embeddings as encoders."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from graphmem_torch.errors import EmbedderError
from graphmem_torch.oracle import OpenAIClient
from graphmem_torch.text.models import AUTO, family_prompts
from graphmem_torch.text.probed import ProbedEmbedder

__all__ = ["ServerEmbedder", "server_embedder"]


class ServerEmbedder(ProbedEmbedder):
    """Embedder of a server with OpenAI's embeddings; `load_embedder` makes one of ADDRESS#MODEL."""

    def __init__(
        self,
        client: OpenAIClient,
        *,
        query_prompt: str = AUTO,
        document_prompt: str = AUTO,
        batch: int = 64,
    ) -> None:
        """Encode the probe texts.

        Args:
            client: Client of the server, with the name of the model; its `options` are fields of
                each request, such as {"dimensions": 256}.
            query_prompt: Text before a question; `auto` is that of the model's family (E5, BGE,
                Nomic) by its name, else none.
            document_prompt: Text before a document; `auto` as above.
            batch: Maximum number of texts of one request.

        Raises:
            EmbedderError: The server is down, or gives no vectors.
        """
        own = family_prompts(client.model)
        question, document = (
            mine if given == AUTO else given
            for given, mine in zip((query_prompt, document_prompt), own, strict=True)
        )
        super().__init__(
            "server",
            client.model,
            lambda texts: client.embed(texts, batch=batch),
            label=f"{client.base_url or 'OpenAI'}#{client.model}",
            query_prompt=question,
            document_prompt=document,
            batch=batch * client.concurrency,
        )
        self.client = client


def server_embedder(
    spec: str, query_prompt: str = AUTO, document_prompt: str = AUTO, *, from_store: bool = False
) -> ServerEmbedder:
    """Return the embedder of a server, "http://localhost:8000/v1#MODEL".

    The key is OPENAI_API_KEY. An address that only a store names may be anybody's; the key is sent
    to it only if it is OpenAI's own or that of OPENAI_BASE_URL.

    Args:
        spec: Address and name of the model.
        query_prompt: Text before a question, see `ServerEmbedder`.
        document_prompt: Text before a document, see `ServerEmbedder`.
        from_store: Whether only a store names the server.

    Raises:
        EmbedderError: Not such an address; the server is down, or gives no vectors.
    """
    address, _, model = spec.partition("#")
    try:
        parts = urlsplit(address)
        usable = bool(parts.hostname and model and parts.port != 0)
    except ValueError:
        parts, usable = None, False
    if parts is not None and (parts.username or parts.password or parts.query):
        raise EmbedderError(
            "embedder: expected an address without a key, as the store keeps it, got one with a "
            "user or a query; set OPENAI_API_KEY"
        )
    if not usable or parts is None:
        raise EmbedderError(
            f"embedder: expected the address of a server and a model, got {spec!r:.120}; write "
            '"http://localhost:8000/v1#MODEL"'
        )
    base = os.environ.get("OPENAI_BASE_URL", "").rstrip("/")
    own = (parts.scheme, parts.netloc) == ("https", "api.openai.com")
    withheld = from_store and not own and address.rstrip("/") != base
    try:
        # "none" is also what a client without a key sends.
        client = OpenAIClient(
            model, base_url=address, api_key="none" if withheld else None, cache=False
        )
        return ServerEmbedder(client, query_prompt=query_prompt, document_prompt=document_prompt)
    except EmbedderError as error:
        unsent = withheld and os.environ.get("OPENAI_API_KEY") and "HTTP 401" in str(error)
        if not unsent:
            raise
        raise EmbedderError(
            f"{error}; OPENAI_API_KEY is not sent to an address that only the store names: give "
            "the embedder by name, or set OPENAI_BASE_URL to its address"
        ) from error
