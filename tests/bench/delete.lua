-- Deletes the messages whose ids stand in a file, one a line: wrk ... URL -- FILE
local report = require("report")

local requests, idle = {}, nil
local sent, answered = 0, 0

function init(arguments)
  for id in io.lines(arguments[1]) do
    requests[#requests + 1] = wrk.format("DELETE", wrk.path .. "/" .. id)
  end
  idle = wrk.format("GET", "/-/livez")
  report.begin()
end

-- Connections without an id left ask whether mq lives, which does not count.
function request()
  sent = sent + 1
  return requests[sent] or idle
end

function response(status)
  if status ~= 202 then
    return
  end
  report.count()
  answered = answered + 1
  if answered == #requests then
    wrk.thread:stop()
  end
end
