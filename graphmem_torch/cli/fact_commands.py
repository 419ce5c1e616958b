"""Commands of facts and their validity: `graphmem facts`."""

from __future__ import annotations

from dataclasses import asdict
from textwrap import wrap

import click

from graphmem_torch.cli.options import Target, store_options
from graphmem_torch.cli.syntax import TIME, Tree, option
from graphmem_torch.cli.terminal import Reply, clip, validity_line, when, width

__all__ = ["facts"]

_LABEL = 11  # columns of a label in a history

facts = Tree("facts", help="State and show what is true, and since when.")


@facts.command("supersede")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@option("--at", type=TIME, help="Change at this time.  [default: the start of NEW]")
@store_options
def supersede(target: Target, old: str, new: str, at: float | None) -> Reply:
    """State that NEW takes the place of OLD, which is kept.

    OLD is true until then; `graphmem query --valid-at` still finds it.
    """
    with target.open("w") as memory:
        found = memory.facts.supersede(old, new, when=at)
    data = {"id": old, "validity": asdict(found)}
    return Reply(data=data, text=f"{old}: {validity_line(found)}")


@facts.command("history")
@click.argument("id")
@store_options
def history(target: Target, id: str) -> Reply:
    """Show the versions, validity and chain of a memory."""
    with target.read() as memory:
        found = memory.history(id)
    lines = [id]
    for version in found.versions:
        since = "from the start" if version.since is None else f"since {when(version.since)}"
        lines.append("  version  " + clip(f"{since}: {version.atom.rendered}", width() - _LABEL))
    for stated in found.statements:
        lines += _hanging("  stated   ", validity_line(stated))
    for each in found.chain if len(found.chain) > 1 else ():
        lines += _hanging("  chain    ", f"{each.id}  {validity_line(each.validity)}")
        lines.append(" " * _LABEL + clip(each.text, width() - _LABEL))
    return Reply(data=found.as_dict(), text="\n".join(lines))


def _hanging(label: str, text: str) -> list[str]:
    """Wrap a text after a label."""
    return wrap(text, width(), initial_indent=label, subsequent_indent=" " * _LABEL)


@facts.command("changes")
@option("--since", type=TIME, required=True, help="Show changes from this time on.")
@store_options
def changes(target: Target, since: float) -> Reply:
    """Show what has changed since a time, in the order it was known."""
    with target.read() as memory:
        found = memory.changes(since)
    lines = []
    for change in found:
        what = f"{change.count:,}" if change.id is None else change.id
        what += "" if change.by is None else f" by {change.by}"
        lines.append(f"{when(change.when)}  {change.what:<10}  {what}")
    return Reply(
        data={"changes": [change.as_dict() for change in found]},
        text="\n".join(lines) or "no changes",
    )


@facts.command("split-name")
@click.argument("name")
@option("--undo", is_flag=True, help="Let a name that was split join others again.")
@store_options
def split_name(target: Target, name: str, undo: bool) -> Reply:
    """Split a name from the concept it shares, for good."""
    with target.open("w") as memory:
        changed = memory.facts.join_name(name) if undo else memory.facts.split_name(name)
    state = "joins others again" if undo else "is a concept of its own"
    return Reply(
        data={"name": name, "split": not undo, "changed": changed},
        text=f"{name} {state}" + ("" if changed else ", as before"),
    )
