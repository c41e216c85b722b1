-- OIP binary form: JSON that describes the tensors, their bytes behind it, and the same back (words: common.lua).
-- wrk -t2 -c8 -d5s -s tests/load/binary.lua http://127.0.0.1:8000 -- matmul 64,128x128,256
local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(folder .. "common.lua")
local request_bytes

function init(args)
    local work, inputs, body = common.work(args), {}, {}
    for i, shape in ipairs(work.shapes) do
        body[i] = common.tensor(work.datatype, shape)
        inputs[i] = string.format(
            '{"name":"INPUT%d","shape":[%s],"datatype":"%s","parameters":{"binary_data_size":%d}}', i - 1, shape,
            work.datatype, #body[i])
    end
    local head = string.format('{%s"inputs":[%s],"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]}',
                               common.parameters(work), table.concat(inputs, ","))
    wrk.method = "POST"
    wrk.body = head .. table.concat(body)
    wrk.headers["Inference-Header-Content-Length"] = tostring(#head)
    request_bytes = wrk.format(nil, work.path)
end

function request() return request_bytes end

function done(summary, latency) common.report(summary, latency) end
