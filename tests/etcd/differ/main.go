// Command differ sends random requests to a real etcd and to Sternpost, and compares every answer field by field.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"sync"
	"time"

	"sternpost/tests/etcd/servers"
)

var (
	seconds     = flag.Int("seconds", 330, "how long to run")
	seed        = flag.Int64("seed", 0, "draws the requests; 0 takes one from the clock")
	floor       = flag.Int64("floor", -1, "fail below this many requests; the default is 50000 from 300 seconds on")
	workers     = flag.Int("workers", 2, "pairs of servers that are driven at the same time")
	falsify     = flag.Bool("falsify", false, "alter one answer of Sternpost: the run must fail")
	prove       = flag.Bool("prove", false, "show that each kind of alteration is noticed")
	shrinkAgain = flag.Bool("shrink", false, "with -replay: go on leaving out steps")
	replayFile  = flag.String("replay", "", "run the steps of a file that a failure has written")
)

// sequenceLength is the steps of a sequence; perServers the sequences until the servers start empty again.
const (
	sequenceLength = 300
	perServers     = 8
)

func main() {
	flag.Parse()
	ok, err := false, error(nil)
	switch {
	case *replayFile != "":
		ok, err = replayOnly(context.Background())
	case *prove:
		ok, err = proveAll(context.Background())
	default:
		ok, err = fullRun(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "differ:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

func replayOnly(ctx context.Context) (bool, error) {
	sequence, err := readSequence(*replayFile)
	if err != nil {
		return false, err
	}
	difference, _, err := replay(ctx, sequence.Steps, nil)
	if err != nil {
		return false, err
	}
	if difference != nil {
		if *shrinkAgain {
			report(ctx, sequence.Seed, sequence.Steps, difference)
		} else {
			fmt.Println(difference)
		}
		return false, nil
	}
	fmt.Printf("%d steps, no difference\n", len(sequence.Steps))
	return true, nil
}

// failure is the first difference of a run, with all steps since the servers were empty.
type failure struct {
	seed    int64
	history []Step
	found   *Difference
}

func fullRun(ctx context.Context) (bool, error) {
	start := time.Now()
	if *seed == 0 {
		*seed = start.UnixNano() % 1_000_000_000
	}
	if *floor < 0 {
		*floor = 0
		if *seconds >= 300 {
			*floor = 50_000
		}
	}
	fmt.Printf("seed %d, %d pairs of servers, %d seconds\n", *seed, *workers, *seconds)
	counts, deadline := newCounts(), start.Add(time.Duration(*seconds)*time.Second)
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	var once sync.Once
	var first *failure
	var broken error
	for worker := range *workers {
		group.Add(1)
		go func() {
			defer group.Done()
			failed, err := work(stop, *seed+int64(worker)*1_000_003, counts, deadline)
			if failed != nil || err != nil {
				once.Do(func() { first, broken = failed, err })
				cancel()
			}
		}()
	}
	group.Wait()
	wall := time.Since(start)
	if broken != nil {
		return false, broken
	}
	if first != nil && *falsify {
		fmt.Printf("\nDIFFERENCE, as it should be: an answer was falsified (seed %d)\n%v\n", first.seed, first.found)
		return false, nil
	}
	if first != nil {
		report(ctx, first.seed, first.history, first.found)
		servers.Result(counts.requests.Load()-1, 1, wall)
		return false, nil
	}
	missing := counts.table()
	requests := counts.requests.Load()
	fmt.Printf("\n%d requests (%.0f a second), %d watches on %d streams, %d events compared, %d restarts, seed %d, %.1f s\n",
		requests, float64(requests)/wall.Seconds(), counts.watches.Load(), counts.streams.Load(), counts.events.Load(),
		counts.restarts.Load(), *seed, wall.Seconds())
	if *floor > 0 && len(missing) > 0 {
		fmt.Printf("never asked or answered: %s\n", strings.Join(missing, "; "))
		return false, nil
	}
	if requests < *floor {
		fmt.Printf("fewer than %d requests\n", *floor)
		return false, nil
	}
	servers.Result(requests, 0, wall)
	return true, nil
}

// work drives one pair after the other until the deadline.
func work(ctx context.Context, seed int64, counts *Counts, deadline time.Time) (*failure, error) {
	random := rand.New(rand.NewSource(seed))
	for number := 0; time.Now().Before(deadline); {
		var falsifier *Falsifier
		if *falsify {
			one := falsifications[random.Intn(len(falsifications))]
			falsifier = &Falsifier{kind: one.name, pass: random.Intn(5)}
		}
		pair, err := newPair(ctx, counts, falsifier)
		if err != nil {
			return nil, ignoreEnd(ctx, err)
		}
		var history []Step
		for i := 0; i < perServers && time.Now().Before(deadline); i++ {
			g := newGenerator(random, len(history)*2)
			g.chosen = i == perServers-1
			steps := g.sequence(sequenceLength, number)
			number++
			for _, step := range steps {
				if !time.Now().Before(deadline) {
					break
				}
				history = append(history, step)
				if err = pair.run(ctx, step); err != nil {
					break
				}
			}
			if err == nil {
				err = pair.sync(ctx)
			}
			if err != nil {
				break
			}
		}
		pair.close()
		var difference *Difference
		if errors.As(err, &difference) && ctx.Err() == nil {
			return &failure{seed, history, difference}, nil
		}
		if err != nil {
			return nil, ignoreEnd(ctx, err)
		}
	}
	return nil, nil
}

// ignoreEnd drops what fails only because the other worker has found something.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// proveAll runs a sequence once per kind of falsification, and expects the comparison to notice each.
func proveAll(ctx context.Context) (bool, error) {
	if *seed == 0 {
		*seed = 1
	}
	began, caught := time.Now(), int64(0)
	for _, one := range falsifications {
		var falsifier *Falsifier
		var difference *Difference
		// Not every sequence has an answer to which every kind applies.
		for try := int64(0); try < 5 && difference == nil && (falsifier == nil || !falsifier.done); try++ {
			steps := newGenerator(rand.New(rand.NewSource(*seed+try)), 0).sequence(3*sequenceLength, 0)
			falsifier = &Falsifier{kind: one.name}
			var err error
			if difference, _, err = replay(ctx, steps, falsifier); err != nil {
				return false, err
			}
		}
		switch {
		case !falsifier.done:
			fmt.Printf("NOT APPLIED  %s: %v\n", one.name, difference)
		case difference == nil:
			fmt.Printf("NOT CAUGHT   %s\n", one.name)
		default:
			caught++
			fmt.Printf("caught       %s: %s\n", one.name, brief(difference.What))
		}
	}
	missed := int64(len(falsifications)) - caught
	servers.Result(caught, missed, time.Since(began))
	return missed == 0, nil
}
