// Command pages makes the same requests to etcd and to Sternpost, and compares their pages of metrics: names, types, labels, buckets, and
// what promtool's linter says of them.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"sternpost/tests/etcd/servers"
)

// limit bounds the whole run.
const limit = 100 * time.Second

func main() {
	falsify := flag.String("falsify", "", "change Sternpost's page first: lint, type, label, bucket or name; the run must fail")
	flag.Parse()
	begun := time.Now()
	passed, wrong, err := run(*falsify)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
	for _, line := range wrong {
		fmt.Println("WRONG:", line)
	}
	servers.Result(int64(passed), int64(len(wrong)), time.Since(begun))
	if len(wrong) > 0 {
		os.Exit(1)
	}
}

func run(falsify string) (int, []string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	dir, err := servers.Scratch()
	if err != nil {
		return 0, nil, err
	}
	defer os.RemoveAll(dir)
	var pages [2]page
	for i, kind := range []servers.Kind{servers.Etcd, servers.Sternpost} {
		if pages[i], err = pageOf(ctx, kind, dir); err != nil {
			return 0, nil, fmt.Errorf("%s: %w", kind, err)
		}
	}
	if err := pages[1].change(falsify); err != nil {
		return 0, nil, err
	}
	passed, wrong := compare(pages[0], pages[1])
	return passed, wrong, nil
}

// page is a page of metrics, as it came and as families by name.
type page struct {
	text     []byte
	families map[string]*dto.MetricFamily
}

// pageOf starts a server, makes the requests and fetches its page.
func pageOf(ctx context.Context, kind servers.Kind, dir string) (page, error) {
	server, err := servers.Start(ctx, kind, dir)
	if err != nil {
		return page{}, err
	}
	defer server.Stop()
	if err := work(ctx, server); err != nil {
		return page{}, err
	}
	text, err := get(ctx, "http://"+server.Endpoint+"/metrics")
	if err != nil {
		return page{}, err
	}
	return read(text)
}

func read(text []byte) (page, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	return page{text, families}, err
}

// change falsifies a page in one respect.
func (p *page) change(what string) error {
	changes := map[string][2]string{
		"lint":   {"# HELP sternpost_build_info ", "# HELP sternpost_buildInfo "},
		"type":   {"# TYPE etcd_mvcc_put_total counter", "# TYPE etcd_mvcc_put_total gauge"},
		"label":  {`grpc_method="`, `grpc_procedure="`},
		"bucket": {`etcd_disk_wal_fsync_duration_seconds_bucket{le="0.001"}`, `etcd_disk_wal_fsync_duration_seconds_bucket{le="0.0011"}`},
		"name":   {"etcd_mvcc_put_total", "etcd_mvcc_puts_total"},
	}
	if what == "" {
		return nil
	}
	change, known := changes[what]
	if !known || !bytes.Contains(p.text, []byte(change[0])) {
		return fmt.Errorf("nothing to falsify by the name %q", what)
	}
	text := bytes.ReplaceAll(p.text, []byte(change[0]), []byte(change[1]))
	changed, err := read(text)
	*p = changed
	return err
}

func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, reply.Status)
	}
	return text, err
}
