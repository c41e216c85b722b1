-- Plain raw form: wrk -t2 -c8 -d5s --latency -s tests/load/raw.lua URL -- MODEL SHAPE [DATATYPE]
local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(folder .. "common.lua")
local request_bytes

function init(args)
    local model, shape, datatype = args[1] or "softmax", args[2] or "1,1024", args[3] or "FP32"
    wrk.method = "POST"
    wrk.body = common.floats(common.elements(shape))
    request_bytes = wrk.format(nil, "/v2/models/" .. model .. "/infer?shape=" .. shape .. "&datatype=" .. datatype)
end

function request() return request_bytes end

function done(summary, latency) common.report(summary, latency) end
