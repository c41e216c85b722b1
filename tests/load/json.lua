-- OIP JSON form: numbers as text, in and out; FP16 and BF16 have none (words: common.lua).
-- wrk -t2 -c8 -d5s -s tests/load/json.lua http://127.0.0.1:8000 -- reduce 16,256 FP32 op=max axis=0
local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(folder .. "common.lua")
local request_bytes

function init(args)
    local work, inputs = common.work(args), {}
    for i, shape in ipairs(work.shapes) do
        inputs[i] = string.format('{"name":"INPUT%d","shape":[%s],"datatype":"%s","data":[%s]}', i - 1, shape,
                                  work.datatype, common.numbers(work.datatype, shape))
    end
    wrk.method = "POST"
    wrk.body = string.format('{%s"inputs":[%s]}', common.parameters(work), table.concat(inputs, ","))
    request_bytes = wrk.format(nil, work.path)
end

function request() return request_bytes end

function done(summary, latency) common.report(summary, latency) end
