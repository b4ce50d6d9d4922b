"""The HTTP interface as both of its sides know it: requests, and how answers are written.

Pure: nothing here sends or stores anything. The server reads requests by it, the client answers.

parameters, query  query parameters, each kind with a parser of its own
endpoints          every endpoint, each declared once: request, right, parameters, answers, ...
endpoint           what an endpoint declares, and what follows from that
routes             from a path to its endpoints and their handlers
envelopes, fetching, queues, schedules, sidelines
                   the parameters and answers of requests for these
bodies             JSON objects, and lines, that a request carries
conditions         If-Match, If-None-Match and Range
rows               a message in an answer: its headers, its line of JSON
problems           the one map of errors to statuses
consume            the two sides of a WebSocket
"""
