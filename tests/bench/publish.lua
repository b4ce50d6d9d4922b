-- Publishes messages of 300 bytes.
require("report")

wrk.method = "POST"
wrk.body = string.rep("x", 300)
