"""`mqctl completion`: what a shell reads to complete mqctl's command lines."""

import click
from click.shell_completion import get_completion_class

from mq.tools.mqctl.exits import ExitCode, Failed


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what SHELL reads to complete command lines.

    \b
    bash:  eval "$(mqctl completion bash)"             in ~/.bashrc
    zsh:   eval "$(mqctl completion zsh)"              in ~/.zshrc
    fish:  mqctl completion fish > ~/.config/fish/completions/mqctl.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise Failed(ExitCode.REFUSED, f"This click completes nothing in {shell}.")
    click.echo(kind(ctx.find_root().command, {}, "mqctl", "_MQCTL_COMPLETE").source())
