-- Plain raw form: the query says what it is, the body is the bytes, and so is the answer (words: common.lua).
-- wrk -t2 -c8 -d5s -s tests/load/raw.lua http://127.0.0.1:8000 -- softmax 64,1024 BF16 axis=0
local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(folder .. "common.lua")
local request_bytes

function init(args)
    local work, query, body = common.work(args), {}, {}
    for i, shape in ipairs(work.shapes) do
        query[i] = "shape=" .. shape
        body[i] = common.tensor(work.datatype, shape)
    end
    table.insert(query, "datatype=" .. work.datatype)
    for _, p in ipairs(work.parameters) do table.insert(query, p.name .. "=" .. p.value) end
    wrk.method = "POST"
    wrk.body = table.concat(body)
    request_bytes = wrk.format(nil, work.path .. "?" .. table.concat(query, "&"))
end

function request() return request_bytes end

function done(summary, latency) common.report(summary, latency) end
