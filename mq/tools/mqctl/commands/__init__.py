"""mqctl's commands, by subject. `mq.tools.mqctl.cli` imports one when it is called."""
