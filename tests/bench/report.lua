-- What every script tells the bench: one line `report {json}` with messages, seconds, errors.
--
-- Scripts without a response() of their own count every answer, over wrk's own time. The others
-- call begin() and count(): their time ends at the last answer that counted, since wrk goes on
-- waiting when there is nothing left to do. One thread only.

local ffi = require("ffi")
ffi.cdef("typedef struct { long s; long ns; } bench_time; int clock_gettime(int, bench_time *);")

local MONOTONIC = 1
local report = {}
local thread

local function now_s()
  local time = ffi.new("bench_time")
  ffi.C.clock_gettime(MONOTONIC, time)
  return tonumber(time.s) + tonumber(time.ns) / 1e9
end

-- Globals, since that is what the summary's thread:get() can read.
function report.begin()
  bench_messages, bench_began_s, bench_ended_s = 0, now_s(), 0
end

function report.count()
  bench_messages = bench_messages + 1
  bench_ended_s = now_s()
end

function setup(given)
  thread = given
end

function done(summary)
  local failed = summary.errors
  local errors = failed.connect + failed.read + failed.write + failed.status + failed.timeout
  local messages = thread:get("bench_messages")
  local seconds = summary.duration / 1e6
  if messages then
    seconds = thread:get("bench_ended_s") - thread:get("bench_began_s")
  else
    messages = summary.requests
  end
  print(string.format(
    'report {"messages": %d, "seconds": %.6f, "errors": %d}', messages, seconds, errors))
end

return report
