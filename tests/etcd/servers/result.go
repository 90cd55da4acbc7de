// The last line of each judge, in the form that cargo's tests have, so that one reader counts both.
package servers

import (
	"fmt"
	"time"
)

// Result prints what passed and what failed: comparisons, checks or requests, as the judge says above.
func Result(passed, failed int64, took time.Duration) {
	verdict := "ok"
	if failed > 0 {
		verdict = "FAILED"
	}
	fmt.Printf("test result: %s. %d passed; %d failed; finished in %.1f s\n", verdict, passed, failed, took.Seconds())
}
