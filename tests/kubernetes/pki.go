// Certificates and keys: one authority, the servers that it vouches for, and the users.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// must ends the judge: what it does here cannot fail on a machine that can run it.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// pki is a directory of PEM files and what is signed with.
type pki struct {
	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial int64
}

// newPKI makes everything. Users are named by their certificates: admin is of the group that may do everything.
func newPKI(parent string) *pki {
	p := &pki{dir: filepath.Join(parent, "pki"), key: newKey()}
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		panic(err)
	}
	ca := p.template("authority")
	ca.IsCA, ca.KeyUsage = true, x509.KeyUsageCertSign
	p.cert = ca
	p.cert = must(x509.ParseCertificate(p.sign(ca, p.key)))
	p.write("ca.crt", "CERTIFICATE", p.cert.Raw)
	p.issue("server", "")
	p.issue("admin", "system:masters")
	p.issue("limited", "")
	p.issue("store-client", "")
	accounts := newKey()
	p.writeKey("accounts.key", accounts)
	p.write("accounts.pub", "PUBLIC KEY", must(x509.MarshalPKIXPublicKey(accounts.Public())))
	return p
}

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func (p *pki) template(name string) *x509.Certificate {
	p.serial++
	return &x509.Certificate{
		SerialNumber:          big.NewInt(p.serial),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
}

func (p *pki) sign(t *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	return must(x509.CreateCertificate(rand.Reader, t, p.cert, key.Public(), p.key))
}

// issue makes a certificate for this machine and for a user.
func (p *pki) issue(name, group string) {
	t, key := p.template(name), newKey()
	if group != "" {
		t.Subject.Organization = []string{group}
	}
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	t.DNSNames, t.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	p.write(name+".crt", "CERTIFICATE", p.sign(t, key))
	p.writeKey(name+".key", key)
}

func (p *pki) writeKey(name string, key *ecdsa.PrivateKey) {
	p.write(name, "PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key)))
}

func (p *pki) write(name, kind string, der []byte) {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(p.path(name), text, 0o600); err != nil {
		panic(err)
	}
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

// clientConfig is a client that trusts the authority and shows this certificate.
func (p *pki) clientConfig(name string) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(p.cert)
	return &tls.Config{
		RootCAs:      roots,
		Certificates: []tls.Certificate{must(tls.LoadX509KeyPair(p.path(name+".crt"), p.path(name+".key")))},
	}
}
