// The certificates of this judge: an authority that is trusted, one that is not, and whom they vouch for.
package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

const day = 24 * time.Hour

// must ends the judge: what it does here cannot fail on a machine that can run it.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// issuer signs certificates.
type issuer struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// identity is a certificate with its private key, and what links it to an authority.
type identity struct {
	chain [][]byte
	key   crypto.Signer
}

func p256() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }
func p521() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader)) }
func rsa2048() crypto.Signer {
	return must(rsa.GenerateKey(rand.Reader, 2048))
}
func ed() crypto.Signer {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return must(key, err)
}

var serials atomic.Int64

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber:          big.NewInt(1000 + serials.Add(1)),
		Subject:               pkix.Name{CommonName: name, Organization: []string{"judge"}},
		NotBefore:             time.Now().Add(-day),
		NotAfter:              time.Now().Add(day),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
}

// authority makes an issuer: of its own, or one that another vouches for.
func authority(name string, above *issuer) *issuer {
	t, key := template(name), p256()
	t.IsCA, t.KeyUsage, t.ExtKeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign, nil
	by, signer := t, key
	if above != nil {
		by, signer = above.cert, above.key
	}
	der := must(x509.CreateCertificate(rand.Reader, t, by, key.Public(), signer))
	return &issuer{must(x509.ParseCertificate(der)), key}
}

// issue makes an identity, altered in some way.
func (i *issuer) issue(name string, key crypto.Signer, alter func(*x509.Certificate)) identity {
	t := template(name)
	if alter != nil {
		alter(t)
	}
	return identity{[][]byte{must(x509.CreateCertificate(rand.Reader, t, i.cert, key.Public(), i.key))}, key}
}

// selfSigned makes an identity that nobody vouches for.
func selfSigned(name string) identity {
	t, key := template(name), p256()
	return identity{[][]byte{must(x509.CreateCertificate(rand.Reader, t, t, key.Public(), key))}, key}
}

// revoke makes a list of serial numbers, in DER.
func (i *issuer) revoke(serials ...int64) []byte {
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-day), NextUpdate: time.Now().Add(day)}
	for _, serial := range serials {
		entry := x509.RevocationListEntry{SerialNumber: big.NewInt(serial), RevocationTime: time.Now().Add(-day)}
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, entry)
	}
	return must(x509.CreateRevocationList(rand.Reader, list, i.cert, i.key))
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (id identity) certPEM() (text []byte) {
	for _, der := range id.chain {
		text = append(text, block("CERTIFICATE", der)...)
	}
	return text
}

func (id identity) keyPEM() []byte {
	return block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(id.key)))
}

func (id identity) tls() *tls.Certificate {
	return &tls.Certificate{Certificate: id.chain, PrivateKey: id.key}
}

// pki is every identity by name, and the directory with the files that flags name.
type pki struct {
	dir     string
	clients map[string]*tls.Certificate
}

const revokedSerial, laterRevokedSerial = 77, 78

func serial(number int64) func(*x509.Certificate) {
	return func(t *x509.Certificate) { t.SerialNumber = big.NewInt(number) }
}

// newPKI makes everything and writes the files.
func newPKI(dir string) *pki {
	ca, other := authority("authority", nil), authority("another authority", nil)
	between := authority("between", ca)
	local := func(t *x509.Certificate) {
		t.DNSNames, t.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	chained := between.issue("client", p256(), nil)
	unchained := chained
	chained.chain = append(chained.chain, between.cert.Raw)
	lone := selfSigned("lone")
	ids := map[string]identity{
		"good":            ca.issue("client", p256(), nil),
		"rsa":             ca.issue("client", rsa2048(), nil),
		"ed25519":         ca.issue("client", ed(), nil),
		"p521":            ca.issue("client", p521(), nil),
		"other CN":        ca.issue("somebody", p256(), nil),
		"other CA":        other.issue("client", p256(), nil),
		"expired":         ca.issue("client", p256(), func(t *x509.Certificate) { t.NotAfter = time.Now().Add(-time.Hour) }),
		"not yet":         ca.issue("client", p256(), func(t *x509.Certificate) { t.NotBefore = time.Now().Add(time.Hour) }),
		"server only":     ca.issue("client", p256(), func(t *x509.Certificate) { t.ExtKeyUsage = t.ExtKeyUsage[1:] }),
		"any purpose":     ca.issue("client", p256(), func(t *x509.Certificate) { t.ExtKeyUsage = nil }),
		"an authority":    ca.issue("client", p256(), func(t *x509.Certificate) { t.IsCA = true }),
		"revoked":         ca.issue("client", p256(), serial(revokedSerial)),
		"same serial":     other.issue("client", p256(), serial(revokedSerial)),
		"revoked later":   ca.issue("client", p256(), serial(laterRevokedSerial)),
		"a host":          ca.issue("", p256(), func(t *x509.Certificate) { t.DNSNames = []string{"a.example"} }),
		"a wildcard":      ca.issue("", p256(), func(t *x509.Certificate) { t.DNSNames = []string{"*.hosts.example"} }),
		"an address":      ca.issue("", p256(), func(t *x509.Certificate) { t.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }),
		"another host":    ca.issue("a.example", p256(), func(t *x509.Certificate) { t.DNSNames = []string{"b.example"} }),
		"intermediate":    chained,
		"no intermediate": unchained,
		"trusted itself":  lone,
	}
	p := &pki{dir: dir, clients: map[string]*tls.Certificate{"none": nil}}
	for name, id := range ids {
		p.clients[name] = id.tls()
	}
	server, second, weird := ca.issue("server", p256(), local), ca.issue("second", p256(), local), ca.issue("server", p521(), local)
	caPEM := block("CERTIFICATE", ca.cert.Raw)
	files := map[string][]byte{
		"cert": server.certPEM(), "key": server.keyPEM(), "cert2": second.certPEM(), "key2": second.keyPEM(),
		"p521.cert": weird.certPEM(), "p521.key": weird.keyPEM(),
		"rsa.cert": nil, "rsa.key": nil,
		"ca": append(caPEM, lone.certPEM()...), "other.ca": block("CERTIFICATE", other.cert.Raw),
		"both.ca": append(append([]byte{}, caPEM...), block("CERTIFICATE", other.cert.Raw)...),
		"crl":     ca.revoke(revokedSerial), "crl.later": ca.revoke(revokedSerial, laterRevokedSerial),
		"crl.pem": block("X509 CRL", ca.revoke(revokedSerial)),
		"empty":   nil, "junk": []byte("no PEM at all\n"),
		"broken.pem": []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
		"locked.key": block("ENCRYPTED PRIVATE KEY", []byte("whatever")),
	}
	big := ca.issue("server", rsa2048(), local)
	files["rsa.cert"], files["rsa.key"] = big.certPEM(), big.keyPEM()
	for name, content := range files {
		p.write(name, content)
	}
	if err := os.Mkdir(filepath.Join(dir, "directory"), 0o700); err != nil {
		panic(err)
	}
	return p
}

func (p *pki) write(name string, content []byte) {
	path := filepath.Join(p.dir, name)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		panic(err)
	}
}

// replace puts the content of one file in the place of another.
func (p *pki) replace(name, with string) {
	p.write(name, must(os.ReadFile(filepath.Join(p.dir, with))))
}

// commonName of the certificate that a server showed.
func commonName(state tls.ConnectionState) string {
	if len(state.PeerCertificates) == 0 {
		return ""
	}
	return fmt.Sprintf("%q", state.PeerCertificates[0].Subject.CommonName)
}
