-- OIP binary form: wrk ... -s tests/load/binary.lua URL -- MODEL SHAPE
local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(folder .. "common.lua")
local request_bytes

function init(args)
    local model, shape = args[1] or "softmax", args[2] or "1,1024"
    local body = common.floats(common.elements(shape))
    local head = string.format(
        '{"inputs":[{"name":"INPUT0","shape":[%s],"datatype":"FP32","parameters":{"binary_data_size":%d}}],' ..
        '"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}', shape, #body)
    wrk.method = "POST"
    wrk.body = head .. body
    wrk.headers["Inference-Header-Content-Length"] = tostring(#head)
    request_bytes = wrk.format(nil, "/v2/models/" .. model .. "/infer")
end

function request() return request_bytes end

function done(summary, latency) common.report(summary, latency) end
