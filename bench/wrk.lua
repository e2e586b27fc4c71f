-- One request under ever new ids, given by the environment; the outcome as one line of JSON.
-- Ids have the same width, so all requests and all answers have the same size. There are many: one
-- that still waits must not be used again in its session, and one whose connection is accepted
-- last, or that is one among many clients, waits while hundreds that came later are answered.
-- With sessions each request is of another one.
local given, first, count = 100, 1000, 8960
local sessions = {}
for session in string.gmatch(os.getenv("BENCH_SESSIONS") or "", "[^\n]+") do
  sessions[#sessions + 1] = session
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
    '\n{"requests":%d,"bytes":%d,"duration_us":%d,'
      .. '"errors":{"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}}\n',
    summary.requests, summary.bytes, summary.duration,
    e.connect, e.read, e.write, e.status, e.timeout))
end
