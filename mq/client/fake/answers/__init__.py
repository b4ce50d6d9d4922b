"""The fake's answers, by what they are about: each request read, done, and answered. Pure."""
