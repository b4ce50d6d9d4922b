"""The HTTP interface as both of its sides know it: what may be asked, and how answers are written.

Pure: nothing here sends or stores anything. The server reads requests by it, and so does
the fake that stands in for it in tests; the client reads answers by it.

parameters, query  what stands in a query, each kind by a parser of its own
routes             every path, its methods, and what each may be told
envelopes, fetching, peeking, queues, schedules, shovels, sidelines, members
                   what requests for these say
bodies, lines      JSON objects, and lines, that a request carries
etags, ranges      conditions, and parts of bodies
carried, rows      a message in an answer: as headers, as a line of JSON
problems           the one map of errors to statuses
consume            the two sides of a WebSocket
"""
