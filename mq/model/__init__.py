"""Names, messages, headers, the lifecycle, settings, selections, schedules, errors and limits. No
I/O but the clock and the time zones.
"""
