// What a store uses, and what it says of itself under /metrics.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"sternpost/tests/etcd/servers"
)

// metric adds up what the store's /metrics says under the name, over all labels that contain each of the texts. The store
// has to be reached in the clear.
func (s *store) metric(ctx context.Context, name string, labels ...string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, "GET", s.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	return sumMetric(string(page), name, labels)
}

// called counts the calls of a gRPC method that the store has begun to serve.
func (p *part) called(s *store, method string) int64 {
	count, err := s.metric(p.ctx, "grpc_server_started_total", `grpc_method="`+method+`"`)
	p.must(err, "metrics of the store")
	return int64(count)
}

// memory is what the process has of the machine's now, in bytes.
func (s *store) memory() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.server.Pid()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("the process %d has no VmRSS", s.server.Pid())
}

// usage is what a store holds, in bytes.
type usage struct{ memory, file, used int64 }

func (u usage) String() string {
	return fmt.Sprintf("%.1f MiB of memory, %.1f MiB of file (%.1f used)",
		float64(u.memory)/mib, float64(u.file)/mib, float64(u.used)/mib)
}

// within tells whether neither memory nor file is more than one and a half times that of before, if that has any.
func (u usage) within(before usage) bool {
	return (before.memory == 0 || 2*u.memory <= 3*before.memory) && 2*u.file <= 3*before.file
}

// uses asks for the usage now.
func (p *part) uses(s *store) usage {
	status, err := s.client.Status(p.ctx, s.client.Endpoints()[0])
	p.must(err, "the status of the store")
	memory, err := s.memory()
	p.must(err, "the memory of the store")
	return usage{memory, status.DbSize, status.DbSizeInUse}
}

// compacts drops all history, and returns once that is done. An etcd is then defragmented; Sternpost gives room back by itself.
func (p *part) compacts(s *store) {
	revision, err := s.revision(p.ctx)
	p.must(err, "the revision of the store")
	p.must(s.compact(p.ctx, revision), "compaction at %d", revision)
	// What apiservers ask for is done in the background; the revision of their note is compacted next, and waited for.
	_, err = s.client.Compact(p.ctx, revision+1, clientv3.WithCompactPhysical())
	p.must(err, "compaction at %d", revision+1)
	if s.server.Kind == servers.Etcd {
		_, err := s.client.Defragment(p.ctx, s.client.Endpoints()[0])
		p.must(err, "defragmentation")
	}
}

// keys counts the keys with a prefix.
func (p *part) keys(s *store, prefix string) (int64, error) {
	got, err := s.client.Get(p.ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return got.Count, nil
}
