-- Each message's whole life: published, fetched, deleted. What is counted is deletes.
--
-- wrk does not say which connection asks, so the connections share the work: whoever is free
-- deletes what was fetched, else fetches what was published, else publishes.
local report = require("report")

local publish, fetch
local fetchable, fetched = 0, {}

function init()
  publish = wrk.format("POST", wrk.path, nil, string.rep("x", 300))
  fetch = wrk.format("GET", wrk.path)
  report.begin()
end

function request()
  local id = table.remove(fetched)
  if id then
    return wrk.format("DELETE", wrk.path .. "/" .. id)
  end
  if fetchable > 0 then
    fetchable = fetchable - 1
    return fetch
  end
  return publish
end

function response(status, headers)
  if status == 201 or status == 204 then
    fetchable = fetchable + 1
  elseif status == 200 then
    fetched[#fetched + 1] = headers["X-Message-Id"]
  elseif status == 202 then
    report.count()
  end
end
