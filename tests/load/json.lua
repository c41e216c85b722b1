-- JSON form: wrk ... -s tests/load/json.lua URL -- MODEL SHAPE
local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(folder .. "common.lua")
local request_bytes

function init(args)
    local model, shape = args[1] or "softmax", args[2] or "1,1024"
    local numbers, state = {}, 12345
    for i = 1, common.elements(shape) do
        state = (state * 1103515245 + 12345) % 2147483648
        numbers[i] = string.format("%.7g", state / 2147483648 * 4 - 2)
    end
    wrk.method = "POST"
    wrk.body = string.format('{"inputs":[{"name":"INPUT0","shape":[%s],"datatype":"FP32","data":[%s]}]}', shape,
                             table.concat(numbers, ","))
    request_bytes = wrk.format(nil, "/v2/models/" .. model .. "/infer")
end

function request() return request_bytes end

function done(summary, latency) common.report(summary, latency) end
