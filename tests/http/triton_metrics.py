#!/usr/bin/env python3
"""Triton's names in /metrics: nv_inference_* of every model, nv_gpu_* as perf_analyzer reads them, and no line for what nobody told.

triton_metrics.py KERNSERVE_STREAMING FOLDER    FOLDER holds a libnvidia-ml.so.1 made for this (tests/nvml_fake.c)
"""

import os
import re
import subprocess
import sys

from daemon import Daemon, check, libraries, request, wrongs

GPU = {"nv_gpu_utilization": 0.37, "nv_gpu_memory_total_bytes": 150754820096, "nv_gpu_memory_used_bytes": 754820096,
       "nv_gpu_power_usage": 123.456, "nv_gpu_power_limit": 700.0, "nv_energy_consumption": 2.5}
OF_FUNCTION = {"utilization": ("nv_gpu_utilization",), "memory": ("nv_gpu_memory_total_bytes", "nv_gpu_memory_used_bytes"),
               "power": ("nv_gpu_power_usage",), "power_limit": ("nv_gpu_power_limit",), "energy": ("nv_energy_consumption",)}
INFERENCE = ["nv_inference_request_success", "nv_inference_request_failure", "nv_inference_count", "nv_inference_exec_count",
             "nv_inference_request_duration_us", "nv_inference_queue_duration_us", "nv_inference_compute_input_duration_us",
             "nv_inference_compute_infer_duration_us", "nv_inference_compute_output_duration_us"]


def page_of(daemon, port, accept="*/*"):
    target = daemon.port
    daemon.port = port
    with daemon.connect() as connection:
        daemon.port = target
        answer = connection.ask(request("GET", "/metrics", (("Accept", accept),)))
    check(answer.status == 200 and answer.header("content-type") == "text/plain; version=0.0.4; charset=utf-8", answer.headers)
    return answer.body.decode()


def gpu_of(text):
    """As perf_analyzer reads it: a new line, one label, a number without an exponent."""
    return {name: float(value) for name, value in re.findall(r'\n(nv_[a-z_]+)\{gpu_uuid="GPU-[0-9a-f-]{36}"\} (\d+\.?\d*)(?=\n)', text)}


def start(path, folder, *options, fails=""):
    return Daemon(path, "--threads", "1", "--pinned-bytes", "16M", *options,
                  environment={**libraries(folder), "KS_NVML_FAILS": fails})


def of_models(daemon):
    with daemon.connect() as connection:
        for body in (b"x" * 16, b"x" * 16, b"too short"):
            connection.ask(request("POST", "/v2/models/softmax_vec/infer?shape=4", (), body))
    text = page_of(daemon, daemon.admin_port)
    for name in INFERENCE:
        check("\n# TYPE %s counter\n" % name in text, name, "has no type")
        check(len(re.findall(r'\n%s\{model="[a-z0-9_]+",version="1"\} \d+(?=\n)' % name, text)) > 20, name, "is not there for every model")
    for name, value in zip(INFERENCE, (2, 1, 2, 2)):
        check('\n%s{model="softmax_vec",version="1"} %d\n' % (name, value) in text, name, "is not", value)
    check("\nkernserve_state" in text, "our own names are gone")


def of_this_gpu(path):
    """What the driver of this host tells, where there is one; without its library a line in the log."""
    with Daemon(path, "--backend", "cuda", "--triton-metrics", "--threads", "1", "--pinned-bytes", "16M") as daemon:
        got = gpu_of(page_of(daemon, daemon.admin_port))
        print("this GPU:", got)
        check(daemon.stop() == 0, "the daemon's end")  # then all of its log is written
        if not got:
            check("no figures of the GPU" in daemon.said(), "neither figures nor a reason:", daemon.said())
        else:
            check(got.get("nv_gpu_memory_total_bytes", 0) > got.get("nv_gpu_memory_used_bytes", 0) > 0, got)
            check(0 <= got.get("nv_gpu_utilization", 0) <= 1 and 0 < got.get("nv_gpu_power_usage", 1) < 2000, got)


def main():
    path, folder = sys.argv[1:]
    with start(path, folder, "--triton-metrics") as daemon:
        text = page_of(daemon, daemon.admin_port, "application/openmetrics-text")
        check(gpu_of(text) == GPU, gpu_of(text), "instead of", GPU)
        check(gpu_of(page_of(daemon, daemon.admin_port))["nv_energy_consumption"] == 5.0, "energy does not grow")
        text = page_of(daemon, daemon.port)
        check("nv_inference_count" in text and gpu_of(text) == {}, "a shard asked the driver")
        of_models(daemon)
        check(daemon.stop() == 0, "the daemon's end")
    for function, names in OF_FUNCTION.items():
        with start(path, folder, "--triton-metrics", fails=function) as daemon:
            left = {name: value for name, value in GPU.items() if name not in names}
            text = page_of(daemon, daemon.admin_port)
            check(gpu_of(text) == left and names[0] not in text, function, gpu_of(text))
    for folder_given, fails, reason in ((folder, "init", "nvmlInit_v2 failed"), (os.path.dirname(folder), "", "libnvidia-ml.so.1 cannot be loaded")):
        if not fails and os.path.exists("/proc/driver/nvidia/version"):
            reason = "NVML does not know the device"
        with start(path, folder_given, "--triton-metrics", fails=fails) as daemon:
            check("nv_gpu" not in page_of(daemon, daemon.admin_port), reason, "and yet figures")
            check(daemon.stop() == 0, "the daemon's end")  # then all of its log is written
            check(reason in daemon.said(), reason, "is not in", daemon.said())
    with start(path, folder) as daemon:
        for port in (daemon.admin_port, daemon.port):
            text = page_of(daemon, port)
            check("nv_" not in text, "Triton's names unasked")
            check(re.findall(r'\nkernserve_device_memory_bytes\{device="[a-z0-9]+",state="([a-z]+)"\} (\d+)', text) == [("used", "754820096"), ("free", "150000000000")],
                  "memory of the device", re.findall("device_memory.*", text))
    for fails in ("memory", "init"):
        with start(path, folder, fails=fails) as daemon:
            check("\nkernserve_device_memory_bytes" not in page_of(daemon, daemon.admin_port), "memory that the driver did not say", fails)
    kernserve = os.path.join(os.path.dirname(os.path.dirname(path)), "kernserve")
    if os.path.exists("/dev/nvidiactl") and "CUDA none" not in subprocess.check_output([kernserve, "--version"], text=True):
        of_this_gpu(kernserve)
    print("%d wrong" % wrongs())
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
