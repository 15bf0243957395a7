// Search runs in a worker, and browsers refuse workers to pages opened from a file. There, run it in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      inner.document.open();
      inner.document.write("<!doctype html><title>Search</title><body>");
      inner.document.close();
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inner = new Promise((loaded, failed) => {
        const script = inner.document.createElement("script");
        script.src = url;
        script.onload = () => loaded(inner);
        script.onerror = failed;
        inner.document.body.append(script);
      });
    }

    postMessage(data) {
      this.inner.then((inner) => inner.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
