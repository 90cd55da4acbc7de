// The comparison of two pages.
package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// own is what the names of Sternpost's own families begin with; every other name must be one of etcd's.
const own = "sternpost_"

// compare holds Sternpost's page against etcd's: how many families are right, and what is wrong.
func compare(etcd, sternpost page) (int, []string) {
	passed, wrong := 0, lint(etcd, sternpost)
	for _, name := range slices.Sorted(maps.Keys(sternpost.families)) {
		if strings.HasPrefix(name, own) {
			passed++
			continue
		}
		if problem := differs(etcd.families[name], sternpost.families[name]); problem != "" {
			wrong = append(wrong, name+": "+problem)
			continue
		}
		passed++
	}
	return passed, wrong
}

// lint is what promtool would say of Sternpost's page and does not say of etcd's.
func lint(etcd, sternpost page) []string {
	said := func(p page) map[string]bool {
		problems, err := promlint.New(bytes.NewReader(p.text)).Lint()
		lines := map[string]bool{}
		if err != nil {
			lines["not a page: "+err.Error()] = true
		}
		for _, problem := range problems {
			lines[problem.Metric+": "+problem.Text] = true
		}
		return lines
	}
	old, now := said(etcd), said(sternpost)
	fmt.Printf("the linter says %d things of etcd's page, %d of Sternpost's\n", len(old), len(now))
	maps.DeleteFunc(now, func(line string, _ bool) bool { return old[line] })
	return slices.Sorted(maps.Keys(now))
}

// differs says in what respect two families of a name are not alike.
func differs(etcd, sternpost *dto.MetricFamily) string {
	if etcd == nil {
		return "etcd has no such family"
	}
	if etcd.GetType() != sternpost.GetType() {
		return fmt.Sprintf("a %s, etcd's is a %s", sternpost.GetType(), etcd.GetType())
	}
	if old, now := labels(etcd), labels(sternpost); !slices.Equal(old, now) {
		return fmt.Sprintf("labels %v, etcd's are %v", now, old)
	}
	if old, now := buckets(etcd), buckets(sternpost); !slices.Equal(old, now) {
		return fmt.Sprintf("buckets %v, etcd's are %v", now, old)
	}
	return ""
}

// labels are the sets of label names that occur, each as one text.
func labels(family *dto.MetricFamily) []string {
	sets := map[string]bool{}
	for _, metric := range family.GetMetric() {
		var names []string
		for _, label := range metric.GetLabel() {
			names = append(names, label.GetName())
		}
		slices.Sort(names)
		sets[strings.Join(names, ",")] = true
	}
	return slices.Sorted(maps.Keys(sets))
}

// buckets are the upper bounds of the first histogram; all of a family have the same.
func buckets(family *dto.MetricFamily) []float64 {
	var bounds []float64
	for _, bucket := range family.GetMetric()[0].GetHistogram().GetBucket() {
		bounds = append(bounds, bucket.GetUpperBound())
	}
	return bounds
}
