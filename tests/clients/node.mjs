// softmax with Node's own fetch, bytes in and out: node node.mjs [URL]
const url = (process.argv[2] ?? "http://localhost:8000") + "/v2/models/softmax/infer?shape=1,4&datatype=FP32";
const answer = await fetch(url, { method: "POST", body: new Float32Array([1, 2, 3, 4]) });
if (!answer.ok) throw new Error(await answer.text());
console.log(new Float32Array(await answer.arrayBuffer()).join(", "));
console.log(answer.headers.get("server-timing"));
