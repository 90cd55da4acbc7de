// Numbers out of the text that /metrics gives.
package main

import (
	"fmt"
	"strconv"
	"strings"
)

// sumMetric adds up the samples of one name whose labels contain each of the texts.
func sumMetric(page, name string, labels []string) (float64, error) {
	sum := 0.0
samples:
	for line := range strings.Lines(page) {
		rest, found := strings.CutPrefix(strings.TrimSpace(line), name)
		if !found || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, label) {
				continue samples
			}
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("the metric %s: %w", name, err)
		}
		sum += value
	}
	return sum, nil
}
