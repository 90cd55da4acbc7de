// Check 11: the apiserver compares each of its caches with the store, under load and while history is compacted.
package main

import (
	"regexp"
	"strings"
	"time"
)

const (
	// The checker begins 5 to 7.5 minutes after a cache, and would end the apiserver on a difference.
	comparedBy     = 11 * time.Minute
	consistencyEnv = "KUBE_WATCHCACHE_CONSISTENCY_CHECKER=true"
)

// resourceLabels are those of a cached resource.
var resourceLabels = regexp.MustCompile(`group="[^"]*",resource="[^"]*"`)

func comparison(t *test) {
	// A cache that nobody reads is as old as the store's last word to it; compared with what is compacted it gives an error.
	o := options{env: []string{consistencyEnv}, flags: []string{"--watch-progress-notify-interval=5s"}}
	c, server := t.alone(o, "--etcd-compaction-interval=30s")
	t.part("each cache equals the store", func(p *part) {
		p.defineBoats(server)
		secrets := "/api/v1/namespaces/" + t.namespace + "/secrets"
		boats := "/apis/example.com/v1/namespaces/" + t.namespace + "/boats"
		loads := []*load{
			p.load(t.configMaps(), 2, 100, 20*time.Millisecond, server.admin),
			p.load(secrets, 2, 100, 20*time.Millisecond, server.admin),
			p.loadOf(boats, boat, 2, 100, 20*time.Millisecond, server.admin),
		}
		began := time.Now()
		caches, compared, failed, faulty := 0, 0, 0.0, 0.0
		p.awaitEvery(2*time.Second, comparedBy, "one comparison of each cache", func() bool {
			p.holds(server.alive(), "the apiserver has ended")
			page := string(p.send(server.admin, "GET", "/metrics", nil).raw)
			caches, compared = 0, 0
			for labels := range labelled(page, "apiserver_watch_cache_initializations_total") {
				caches++
				if p.sum(page, labels, "success") > 0 {
					compared++
				}
			}
			failed, faulty = p.sum(page, "", "failure"), p.sum(page, "", "error")
			p.holds(failed == 0, "%v comparisons failed", failed)
			return caches > 0 && compared == caches
		})
		writes := int64(0)
		for _, l := range loads {
			l.end(p)
			writes += l.acks.Load()
			p.holds(l.unknown.Load() == 0, "%d writes to %s had an unknown outcome", l.unknown.Load(), l.path)
		}
		p.holds(faulty == 0, "%v comparisons could not be made", faulty)
		for _, text := range []string{"Cache consistency check failed", "panic:", "Observed a panic"} {
			lines, err := server.logged(text)
			p.must(err, "the log")
			p.holds(lines == 0, "the log has %d times %q", lines, text)
		}
		compactions := p.called(c.store, "Compact")
		p.holds(compactions >= 2, "%d compactions", compactions)
		p.sees("%d caches, each compared in %.0f s, during %d writes and %d compactions",
			caches, time.Since(began).Seconds(), writes, compactions)
	})
}

// labelled gives the resources that a metric has samples of.
func labelled(page, name string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, name+"{") {
			found[resourceLabels.FindString(line)] = true
		}
	}
	return found
}

// sum adds up the comparisons of this outcome.
func (p *part) sum(page, labels, status string) float64 {
	count, err := sumMetric(page, "apiserver_storage_consistency_checks_total", []string{labels, `status="` + status + `"`})
	p.must(err, "metrics")
	return count
}

// boat is a custom object with a value.
func boat(name, value string) object {
	return valued(name, value).set("example.com/v1", "apiVersion").set("Boat", "kind")
}
