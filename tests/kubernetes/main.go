// Command kubernetes runs a real kube-apiserver on Sternpost or on a real etcd, and checks through the Kubernetes API what
// the apiserver makes of its store.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sternpost/tests/etcd/servers"
)

// wallLimit bounds a run.
const wallLimit = 90 * time.Minute

func main() {
	backend := flag.String("backend", "sternpost", "what the apiserver stores in: `sternpost|etcd`")
	list := flag.String("checks", "", "`numbers` and ranges, such as 1-3,7; without it all that are not long")
	keep := flag.Bool("keep", false, "leave logs and data, and print where")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "draws what is random")
	scale := flag.Float64("scale", 1, "`part` of the sizes of the long checks")
	flag.Parse()
	kind := servers.Kind(*backend)
	chosen, err := choose(*list)
	if err == nil && kind != servers.Sternpost && kind != servers.Etcd {
		err = fmt.Errorf("--backend %s: there are sternpost and etcd", *backend)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	began := time.Now()
	fmt.Printf("kube-apiserver %s on %s, seed %d\n", os.Getenv("KUBERNETES_VERSION"), kind, *seed)
	passed, failed, err := run(kind, chosen, *keep, *seed, *scale)
	if err != nil {
		fmt.Println(err)
		failed++
	}
	servers.Result(passed, failed, time.Since(began))
	if failed > 0 {
		os.Exit(1)
	}
}

// run makes what all checks share, and goes through the chosen ones.
func run(kind servers.Kind, chosen []check, keep bool, seed uint64, scale float64) (passed, failed int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), wallLimit)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir, err := servers.Scratch()
	if err != nil {
		return 0, 0, err
	}
	if keep {
		fmt.Println("logs and data are in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	w := &world{kind: kind, dir: dir, pki: newPKI(dir)}
	defer w.end()
	for _, c := range chosen {
		good, bad := runCheck(ctx, w, c, seed, scale)
		passed, failed = passed+good, failed+bad
	}
	return passed, failed, nil
}

// choose reads a list of numbers and ranges.
func choose(list string) ([]check, error) {
	if list == "" {
		return slices.DeleteFunc(slices.Clone(checks), func(c check) bool { return c.long }), nil
	}
	var chosen []check
	for item := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(item, "-")
		if !isRange {
			high = low
		}
		from, err := strconv.Atoi(low)
		if err != nil {
			return nil, fmt.Errorf("--checks %s: %s is no number", list, low)
		}
		to, err := strconv.Atoi(high)
		if err != nil {
			return nil, fmt.Errorf("--checks %s: %s is no number", list, high)
		}
		before := len(chosen)
		for _, c := range checks {
			if from <= c.number && c.number <= to {
				chosen = append(chosen, c)
			}
		}
		if len(chosen) == before {
			return nil, fmt.Errorf("--checks %s: there is no check in %s", list, item)
		}
	}
	return chosen, nil
}
