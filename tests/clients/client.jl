# softmax with Julia's standard library, bytes in and out: julia client.jl [URL]
using Downloads

url = (isempty(ARGS) ? "http://localhost:8000" : ARGS[1]) * "/v2/models/softmax/infer?shape=1,4&datatype=FP32"
answer = IOBuffer()
input = IOBuffer(reinterpret(UInt8, Float32[1, 2, 3, 4]))
response = request(url; method = "POST", input = input, output = answer, headers = ["Content-Length" => "16"])
response.status == 200 || error(String(take!(answer)))
println(reinterpret(Float32, take!(answer)))
println(only(value for (name, value) in response.headers if lowercase(name) == "server-timing"))
