"""`graphmem mcp`: a memory as a server of tools for agents."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graphmem_torch.cli import interrupt_as_usual
from graphmem_torch.cli.options import (
    Target,
    expect_no_slip,
    given_settings,
    load_engine,
    preset_option,
    settings_options,
    target_options,
)
from graphmem_torch.cli.syntax import Leaf, Value, option
from graphmem_torch.errors import InputError

if TYPE_CHECKING:
    from graphmem_torch.memory import Memory

__all__ = ["mcp"]


def _address(text: str, label: str) -> tuple[str, int]:
    """Read `HOST:PORT`; an IPv6 address may be in brackets."""
    host, colon, port = text.rpartition(":")
    if not (colon and host.strip("[]") and port.isascii() and port.isdigit() and int(port) < 65536):
        raise InputError(
            f"{label}: expected HOST:PORT, got {text!r:.60}; write {label} 127.0.0.1:8765"
        )
    return host.strip("[]"), int(port)


@click.command("mcp", cls=Leaf, after_interrupt="what was acknowledged is stored")
@option(
    "--http",
    type=Value("HOST:PORT", _address),
    help="Serve streamable HTTP at http://HOST:PORT/mcp, without authentication, instead of "
    "standard input and output.",
)
@option("--read-only", is_flag=True, help="Offer only the tools that read.")
@option("--new", is_flag=True, help="Make a store even if its name is much like another's.")
@target_options
@preset_option
@settings_options
@click.pass_context
def mcp(
    ctx: click.Context,
    http: tuple[str, int] | None,
    read_only: bool,
    new: bool,
    store: Path,
    namespace: str | None,
    **own: Any,
) -> int:
    """Serve a memory to agents by the Model Context Protocol, and make the store if there is none.

    Answers a client at once, and loads the engine while it reads the list of tools. Needs
    graphmem-torch[mcp].
    """
    from graphmem_torch.integrations.mcp import MemoryServer

    target = Target(store=store, namespace=namespace, settings=given_settings(ctx, own))
    if target.exists or read_only:  # fails at the start, not at the first call
        with (target if read_only else replace(target, namespace=None)).read():
            pass
    elif not new:
        expect_no_slip(store)

    def opened() -> Memory:
        load_engine(target.settings.imports)
        from graphmem_torch.memory import Memory

        return Memory.open(
            store,
            config=target.settings.config,
            embedder=target.settings.embedder,
            device=target.settings.device,
            mode="r" if read_only else "w",
        )

    with MemoryServer(opened, namespace=namespace, readonly=read_only) as server:
        if http is not None:
            interrupt_as_usual()
            server.run_http(*http)
            return 0
        # A thread that waits for a line of standard input cannot be interrupted: end at once.
        before = signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            server.run()
        finally:
            signal.signal(signal.SIGINT, before)
    return 0
