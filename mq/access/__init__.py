"""Who may do what: callers and their rights, and what they show of themselves.

callers     rights, grants, callers, and what knows them
rules       what an operation needs
grants      grants as text
tokens      tokens, and the lines that tell of them
token_file  those lines in a file
bearer      the header that shows a token
"""
