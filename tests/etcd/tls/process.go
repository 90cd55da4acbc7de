// One server with flags of its own, and what a client finds when it comes to it.
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"sternpost/tests/etcd/servers"
)

// What may come of a start, and of a client that comes.
const (
	starts  = "starts"
	refuses = "refuses"
	deaf    = "starts, and lets nobody in"
	served  = "served"
	refused = "refused"
)

// startLimit bounds a start, callLimit one call; a server that listens for deafLimit and serves nobody lets nobody in.
const (
	startLimit = 60 * time.Second
	callLimit  = 3 * time.Second
	deafLimit  = 8 * time.Second
)

// process is a running server.
type process struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	client string // host:port of the client URL
	extra  string // host:port of a second URL that flags may name
	log    string
}

// expand writes out what rows abbreviate.
func expand(flags string, p *pki, client, extra string) []string {
	var all []string
	for _, flag := range strings.Fields(flags) {
		flag = strings.ReplaceAll(flag, "PKI/", p.dir+"/")
		flag = strings.ReplaceAll(flag, "CLIENT", client)
		all = append(all, strings.ReplaceAll(flag, "EXTRA", extra))
	}
	return all
}

// launch starts a server and returns at once.
func launch(kind servers.Kind, dir string, p *pki, flags string) *process {
	client, extra, peer := must(servers.FreePort()), must(servers.FreePort()), must(servers.FreePort())
	data := must(os.MkdirTemp(dir, string(kind)))
	args := append([]string{"--data-dir", filepath.Join(data, "data")}, expand(flags, p, client, extra)...)
	if !strings.Contains(flags, "--listen-client-urls") {
		args = append(args, "--listen-client-urls=https://"+client)
	}
	args = append(args, "--advertise-client-urls=https://"+client)
	if kind == servers.Etcd {
		url := "http://" + peer
		args = append(args, "--listen-peer-urls", url, "--initial-advertise-peer-urls", url, "--initial-cluster", "default="+url,
			"--log-level", "warn")
	}
	s := &process{ended: make(chan struct{}), client: client, extra: extra, log: filepath.Join(data, "log")}
	log := must(os.Create(s.log))
	defer log.Close()
	s.cmd = exec.Command(must(servers.Binary(kind)), args...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = data, log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		panic(err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	return s
}

func (s *process) stop() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// outcome waits until the server has ended, or answers one of the clients.
func (s *process) outcome(clients ...*tls.Config) string {
	deadline, listens := time.Now().Add(startLimit), false
	for time.Now().Before(deadline) {
		for _, config := range clients {
			if s.call(s.client, config) == served {
				return starts
			}
		}
		if conn, err := net.DialTimeout("tcp", s.client, callLimit); err == nil && !listens {
			conn.Close()
			deadline, listens = time.Now().Add(deafLimit), true
		}
		select {
		case <-s.ended:
			return refuses
		case <-time.After(20 * time.Millisecond):
		}
	}
	if listens {
		return deaf
	}
	return "neither listens nor ends"
}

// call makes a request over a new connection; without config it is in the clear.
func (s *process) call(address string, config *tls.Config) string {
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	conn := must(grpc.NewClient(address, grpc.WithTransportCredentials(creds)))
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if _, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte{0}}); err != nil {
		return refused
	}
	return served
}

// page fetches a page and gives the status, or "refused".
func page(url string, config *tls.Config, protocols *http.Protocols) string {
	transport := &http.Transport{TLSClientConfig: config, Protocols: protocols, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: callLimit}
	response, err := client.Get(url)
	if err != nil {
		return refused
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return fmt.Sprint(response.StatusCode)
}

// shown is the common name of the certificate that a handshake shows.
func (s *process) shown(config *tls.Config) string {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: callLimit}, "tcp", s.client, config)
	if err != nil {
		return refused
	}
	defer conn.Close()
	return commonName(conn.ConnectionState())
}

// as is a client with this certificate, which trusts any server.
func (p *pki) as(name string) *tls.Config {
	cert, known := p.clients[name]
	if !known {
		panic("no client " + name)
	}
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS10}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if cert == nil {
			return &tls.Certificate{}, nil
		}
		// Whatever authorities the server names: what it does with another's certificate is the question.
		return cert, nil
	}
	return config
}
