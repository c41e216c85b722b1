// A weight that is uploaded once and used by its name, with Node's own fetch: node tensor.mjs [URL]
const host = process.argv[2] ?? "http://localhost:8000";

async function ask(method, target, body) {
    const answer = await fetch(host + target, { method, body });
    if (!answer.ok) throw new Error(await answer.text());
    return answer;
}

await ask("PUT", "/v2/tensors/W?shape=2,2&datatype=FP32&ttl=600", new Float32Array([1, 2, 3, 4]));
const answer = await ask("POST", "/v2/models/matmul/infer?shape=1,2&datatype=FP32&INPUT1=@W", new Float32Array([5, 6]));
console.log(new Float32Array(await answer.arrayBuffer()).join(", "));
console.log(answer.headers.get("server-timing"));
await ask("DELETE", "/v2/tensors/W");
