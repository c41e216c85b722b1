-- What all load scripts share: bodies that are never uniform, and one line of JSON at the end.
local common = {}

-- n little-endian FP32 numbers between 0.5 and 2 whose last bytes differ
function common.floats(n)
    local pieces, state = {}, 12345
    for i = 1, n do
        state = (state * 1103515245 + 12345) % 2147483648
        pieces[i] = string.char(state % 256, math.floor(state / 256) % 256, math.floor(state / 65536) % 128, 63)
    end
    return table.concat(pieces)
end

-- "64,1024" -> 65536
function common.elements(shape)
    local n = 1
    for d in string.gmatch(shape, "%d+") do n = n * tonumber(d) end
    return n
end

function common.report(summary, latency)
    local e = summary.errors
    io.write(string.format(
        '{"requests":%d,"seconds":%.3f,"rate":%.0f,"errors":%d,"p50_us":%d,"p99_us":%d,"max_us":%d}\n',
        summary.requests, summary.duration / 1e6, summary.requests / (summary.duration / 1e6),
        e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(50), latency:percentile(99), latency.max))
end

return common
