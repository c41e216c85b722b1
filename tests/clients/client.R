# softmax with R and its curl package, bytes in and out: Rscript client.R [URL]
library(curl)
arguments <- commandArgs(trailingOnly = TRUE)
url <- if (length(arguments)) arguments[1] else "http://localhost:8000"
body <- writeBin(c(1, 2, 3, 4), raw(), size = 4, endian = "little")
handle <- new_handle(post = TRUE, postfieldsize = length(body), postfields = body)
answer <- curl_fetch_memory(paste0(url, "/v2/models/softmax/infer?shape=1,4&datatype=FP32"), handle)
stopifnot(answer$status_code == 200)
print(readBin(answer$content, "numeric", n = 4, size = 4, endian = "little"))
cat(grep("^server-timing", parse_headers(answer$headers), ignore.case = TRUE, value = TRUE), "\n")
