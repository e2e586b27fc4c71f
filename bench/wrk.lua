-- One request under ever new ids, given by the environment; the outcome as one line of JSON.
-- Ids have the same width, so all requests and all answers have the same size.
-- With sessions each request is of another one, and has an id of more digits: one that still waits
-- must not be used again, and among many clients one may wait long.
local given, first, count = 100, 100, 64
local sessions = {}
for session in string.gmatch(os.getenv("BENCH_SESSIONS") or "", "[^\n]+") do
  sessions[#sessions + 1] = session
  first, count = 1000, 8960
end
local body = os.getenv("BENCH_BODY")
local ready, turn = {}, 0

wrk.method = "POST"
for name, value in string.gmatch(os.getenv("BENCH_HEADERS"), "([^:\n]+): ([^\n]+)") do
  wrk.headers[name] = value
end

init = function()
  for n = 1, count do
    if #sessions > 0 then
      wrk.headers["Mcp-Session-Id"] = sessions[n % #sessions + 1]
    end
    local with_id = body:gsub('"id":' .. given, '"id":' .. (first + n - 1), 1)
    ready[n] = wrk.format(nil, nil, nil, with_id)
  end
end

request = function()
  turn = turn % count + 1
  return ready[turn]
end

done = function(summary)
  local e = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"bytes":%d,"duration_us":%d,"errors":%d}\n',
    summary.requests, summary.bytes, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout))
end
