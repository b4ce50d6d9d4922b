"""What things are: names, messages, headers, the lifecycle, settings, selections, schedules,
errors and limits. It reads no file and opens no socket.
"""
