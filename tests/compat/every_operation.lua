-- Requests that a test has written into a folder, in turn over all connections; each answer is compared with the bytes that it has to be.
-- wrk -t1 -c4 -d1s -s every_operation.lua http://127.0.0.1:8000 -- FOLDER COUNT       (COUNT: answers, behind which it stops)
-- FOLDER/requests has a line a request: its target. Its body is FOLDER/N.body, its answer FOLDER/N.answer. The daemon hands X-Request-Id back, which
-- says whose an answer is, whichever connection it comes by.
local threads, requests, wanted, turn, left = {}, {}, {}, 0, 0
seen, wrongs, first_wrong, timings = {}, 0, "", {} -- globals: done() reads them

local function read(path)
    local file = assert(io.open(path, "rb"))
    local bytes = file:read("*a")
    file:close()
    return bytes
end

function setup(thread) table.insert(threads, thread) end

function init(args)
    left = tonumber(args[2])
    for target in io.lines(args[1] .. "/requests") do
        local n = #requests + 1
        requests[n] = wrk.format("POST", target, {["X-Request-Id"] = tostring(n)}, read(args[1] .. "/" .. n .. ".body"))
        wanted[n], seen[n] = read(args[1] .. "/" .. n .. ".answer"), 0
    end
end

function request()
    turn = turn % #requests + 1
    return requests[turn]
end

local function say(n, what)
    wrongs = wrongs + 1
    if first_wrong == "" then first_wrong = "request " .. n .. ": " .. what end
end

function response(status, headers, body)
    local n = tonumber(headers["X-Request-Id"]) or 0
    if status ~= 200 then
        say(n, status .. " " .. string.sub(body, 1, 200))
    elseif body ~= wanted[n] then
        say(n, "other bytes than before")
    else
        seen[n] = seen[n] + 1
    end
    timings[#timings + 1] = headers["Server-Timing"] or ""
    left = left - 1
    if left <= 0 then wrk.thread:stop() end
end

-- a line a request: how often its answer was right; then the Server-Timing of each answer
function done(summary)
    local e = summary.errors
    for _, thread in ipairs(threads) do
        for _, count in ipairs(thread:get("seen")) do print("seen " .. count) end
        for _, text in ipairs(thread:get("timings")) do print("timing " .. text) end
        print("wrongs " .. thread:get("wrongs") + e.connect + e.read + e.timeout .. " " .. thread:get("first_wrong"))
    end
end
