-- Fetches messages until there are none.
local report = require("report")

function init()
  report.begin()
end

function response(status)
  if status == 200 then
    report.count()
  elseif status == 204 then
    wrk.thread:stop()
  end
end
