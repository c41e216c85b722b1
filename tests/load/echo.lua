-- For bare_echo: wrk ... -s tests/load/echo.lua URL -- BYTES
local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(folder .. "common.lua")
local request_bytes

function init(args)
    wrk.method = "POST"
    wrk.body = common.floats(math.floor(tonumber(args[1]) / 4))
    request_bytes = wrk.format(nil, "/")
end

function request() return request_bytes end

function done(summary, latency) common.report(summary, latency) end
