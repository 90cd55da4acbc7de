// A client of the Kubernetes API that hides nothing: it sends what it is told to, once, and gives what came.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// api is one user at one apiserver.
type api struct {
	name   string
	base   string
	client *http.Client
}

// answer is what came. The body is empty if it is no JSON.
type answer struct {
	code int
	body object
	raw  []byte
}

func newAPI(name, base string, config *tls.Config) *api {
	return &api{name, base, &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}}
}

// request begins a request and returns when the head of the answer is there.
func (a *api) request(ctx context.Context, method, path string, body any, contentType string) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.base+path, content)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", contentType)
	}
	return a.client.Do(request)
}

// send makes a request with a body of JSON, or none.
func (a *api) send(ctx context.Context, method, path string, body any) (*answer, error) {
	return a.sendAs(ctx, method, path, body, "application/json")
}

// sendAs is send with another type of body, such as that of a patch.
func (a *api) sendAs(ctx context.Context, method, path string, body any, contentType string) (*answer, error) {
	response, err := a.request(ctx, method, path, body, contentType)
	if err != nil {
		return nil, err
	}
	return read(response)
}

func read(response *http.Response) (*answer, error) {
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	a := &answer{code: response.StatusCode, raw: raw}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(raw, &a.body); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// is tells whether the answer is an error of this code and reason.
func (a *answer) is(code int, reason string) bool {
	return a.code == code && a.body.text("reason") == reason
}

func (a *answer) String() string {
	return fmt.Sprintf("%d %s %q", a.code, a.body.text("reason"), a.body.text("message"))
}

// query appends parameters, given as name and value by turns, to a path.
func query(path string, parameters ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(parameters); i += 2 {
		values.Set(parameters[i], parameters[i+1])
	}
	return path + "?" + values.Encode()
}

// send is the same within a part, which ends if nothing comes.
func (p *part) send(a *api, method, path string, body any) *answer {
	got, err := a.send(p.ctx, method, path, body)
	p.must(err, "%s %s of %s", method, path, a.name)
	return got
}

// patch sends a patch of the type "merge-patch+json", "json-patch+json", ...
func (p *part) patch(a *api, path, kind string, body any) *answer {
	got, err := a.sendAs(p.ctx, "PATCH", path, body, "application/"+kind)
	p.must(err, "PATCH %s of %s", path, a.name)
	return got
}

// expect ends the part unless the answer has the code, and gives its body.
func (p *part) expect(got *answer, code int, what string) object {
	p.holds(got.code == code, "%s: want %d, got %v", what, code, got)
	return got.body
}

// create, get and put want to succeed.
func (p *part) create(a *api, path string, o object) object {
	return p.expect(p.send(a, "POST", path, o), http.StatusCreated, "POST "+path)
}

func (p *part) get(a *api, path string) object {
	return p.expect(p.send(a, "GET", path, nil), http.StatusOK, "GET "+path)
}

func (p *part) put(a *api, path string, o object) object {
	return p.expect(p.send(a, "PUT", path, o), http.StatusOK, "PUT "+path)
}
