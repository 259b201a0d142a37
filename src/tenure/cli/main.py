"""The `tenure` command: gathers the sub-commands, and turns every typed error into one line and exit code 2. It does no
work itself."""

from __future__ import annotations

try:
    import rich  # noqa: F401 - the tables need it
    import typer
    from typer.core import TyperGroup
except ImportError:  # pragma: no cover - needs an install without the extra
    raise SystemExit("tenure: the command line needs more: pip install 'tenure[cli,lab]'") from None

from typing import Annotated, Any

from tenure import __version__
from tenure.cli import demo, doctor, generate, life, plan, replay, rollout, scbench, tour, why
from tenure.errors import TenureError

__all__ = ["app"]


class OneLineErrors(TyperGroup):
    """A group whose commands may raise TenureError: the user sees its message, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; on a TenureError print its message and exit with 2."""
        try:
            return super().invoke(ctx)
        except TenureError as problem:
            typer.echo(f"tenure: {problem}", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    cls=OneLineErrors,
    name="tenure",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"tenure {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Decide how long KV-cache blocks live: replay traffic, plan memory, and see why a request missed."""


app.command("replay")(replay.command)
app.command("plan")(plan.command)
app.command("generate")(generate.command)
app.command("why")(why.command)
app.command("life")(life.command)
app.command("demo")(demo.command)
app.command("tour")(tour.command)
app.command("doctor")(doctor.command)
app.add_typer(rollout.app, name="rollout")
app.add_typer(scbench.app, name="scbench")
