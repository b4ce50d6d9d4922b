-- An empty POST.
require("report")

wrk.method = "POST"
