// softmax with Go's standard library, bytes in and out: go run main.go [URL]
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log"
	"net/http"
	"os"
)

func main() {
	url := "http://localhost:8000"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	var body bytes.Buffer
	binary.Write(&body, binary.LittleEndian, []float32{1, 2, 3, 4})
	answer, err := http.Post(url+"/v2/models/softmax/infer?shape=1,4&datatype=FP32", "application/octet-stream", &body)
	if err != nil || answer.StatusCode != 200 {
		log.Fatal(err, answer)
	}
	defer answer.Body.Close()
	y := make([]float32, 4)
	if err := binary.Read(answer.Body, binary.LittleEndian, y); err != nil {
		log.Fatal(err)
	}
	fmt.Println(y)
	fmt.Println(answer.Header.Get("Server-Timing"))
}
