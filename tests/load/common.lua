-- What the load scripts share: what their words mean, bodies that are never uniform, and one line of JSON at the end.
--
-- MODEL        softmax, reduce, matmul or a preset of them       softmax, if not given
-- SHAPE        64,1024 or, for two inputs, 64,128x128,256        1,1024
-- DATATYPE     of the inputs                                     FP32
-- NAME=VALUE   parameters, such as op=max axis=0
local common = {}

-- How an element ends, so that any bytes before make an uneven number between 0.5 and 1: how many bytes those are, the
-- largest value of the last of them, and the rest. Integers are any bytes.
local formats = {
    FP64 = {6, 255, "\224\63"}, FP32 = {3, 127, "\63"}, BF16 = {1, 127, "\63"}, FP16 = {1, 255, "\56"},
    INT8 = {1, 255, ""}, INT16 = {2, 255, ""}, INT32 = {4, 255, ""}, INT64 = {8, 255, ""},
    UINT8 = {1, 255, ""}, UINT16 = {2, 255, ""}, UINT32 = {4, 255, ""}, UINT64 = {8, 255, ""},
}

function common.work(args)
    local work = {model = args[1] or "softmax", datatype = args[3] or "FP32", shapes = {}, parameters = {}}
    assert(formats[work.datatype], "no such datatype: " .. work.datatype)
    for shape in string.gmatch(args[2] or "1,1024", "[^x]+") do table.insert(work.shapes, shape) end
    for i = 4, #args do
        local name, value = string.match(args[i], "^([^=]+)=(.*)$")
        assert(name, "not NAME=VALUE: " .. args[i])
        table.insert(work.parameters, {name = name, value = value})
    end
    work.path = "/v2/models/" .. work.model .. "/infer"
    return work
end

-- "64,1024" -> 65536
function common.elements(shape)
    local n = 1
    for d in string.gmatch(shape, "%d+") do n = n * tonumber(d) end
    return n
end

local state = 12345
local function random(below)
    state = (state * 1103515245 + 12345) % 2147483648
    return math.floor(state / 65536) % below
end

-- the elements of a shape, little-endian; a large tensor repeats so many of them, a prime, so that no row is like another
local BLOCK = 65521

function common.tensor(datatype, shape)
    local free, last, tail = unpack(formats[datatype])
    local count, pieces = common.elements(shape), {}
    for i = 1, math.min(count, BLOCK) do
        for _ = 2, free do pieces[#pieces + 1] = string.char(random(256)) end
        pieces[#pieces + 1] = string.char(random(last + 1)) .. tail
    end
    local block = table.concat(pieces)
    if count <= BLOCK then return block end
    local rest = #block / BLOCK * (count % BLOCK)
    return string.rep(block, math.floor(count / BLOCK)) .. string.sub(block, 1, rest)
end

-- the same as JSON numbers
function common.numbers(datatype, shape)
    local pieces, whole = {}, string.find(datatype, "INT")
    for i = 1, common.elements(shape) do
        pieces[i] = whole and random(100) or string.format("%.7g", (random(32768) * 32768 + random(32768)) / 2 ^ 28 - 2)
    end
    return table.concat(pieces, ",")
end

-- the request's parameters as a member of its JSON, or nothing
function common.parameters(work)
    local pieces = {}
    for i, p in ipairs(work.parameters) do
        local bare = tonumber(p.value) or p.value == "true" or p.value == "false"
        pieces[i] = string.format(bare and '"%s":%s' or '"%s":"%s"', p.name, p.value)
    end
    return #pieces > 0 and '"parameters":{' .. table.concat(pieces, ",") .. "}," or ""
end

function common.report(summary, latency)
    local e = summary.errors
    io.write(string.format(
        '{"requests":%d,"seconds":%.3f,"rate":%.0f,"errors":%d,"p50_us":%d,"p99_us":%d,"max_us":%d}\n',
        summary.requests, summary.duration / 1e6, summary.requests / (summary.duration / 1e6),
        e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(50), latency:percentile(99),
        latency.max))
end

return common
