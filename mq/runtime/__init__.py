"""What all daemons share: options, logs, systemd, watchdogs, settings of the process."""
