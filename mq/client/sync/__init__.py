"""The same client for threads: each word runs the asynchronous one in a background event loop."""
