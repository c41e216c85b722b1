-- All three operations in turn, small and middling, in the plain raw form; it takes no words.
-- wrk -t2 -c8 -d5s -s tests/load/mix.lua http://127.0.0.1:8000
local folder = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(folder .. "common.lua")
local requests, turn = {}, 0

local function add(model, query, shape)
    requests[#requests + 1] = wrk.format("POST", "/v2/models/" .. model .. "/infer?" .. query .. "&datatype=FP32", nil,
                                         common.tensor("FP32", shape))
end

function init()
    add("softmax", "shape=1,1024", "1,1024")
    add("reduce", "shape=16,256&op=sum", "16,256")
    add("matmul", "shape=32,32&shape=32,32", "2048")
    add("softmax", "shape=64,256&axis=0", "64,256")
    add("reduce", "shape=8,512&op=max&axis=0", "8,512")
end

function request()
    turn = turn % #requests + 1
    return requests[turn]
end

function done(summary, latency) common.report(summary, latency) end
