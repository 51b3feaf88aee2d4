// Files of a message: pictures shown, everything else offered.
import { useEffect, useState } from "preact/hooks";

import { FileForm, type FileRef } from "../contract.js";
import { attempt } from "../state/app.js";
import { isPicture, pictureAddress, saveFile } from "../state/files.js";
import { size } from "../state/words.js";

export function Files({ sessionId, files }: { sessionId: string; files: readonly FileRef[] }) {
  if (files.length === 0) return null;
  return (
    <div class="files">
      {files.map((file) => (isPicture(file) ? <Picture key={file.sha256} sessionId={sessionId} file={file} /> : <Chip key={file.sha256} sessionId={sessionId} file={file} />))}
    </div>
  );
}

function Chip({ sessionId, file }: { sessionId: string; file: FileRef }) {
  const name = file.filename || "file";
  return (
    <button type="button" class="file" title={`Save ${name}`} onClick={() => void attempt(() => saveFile(sessionId, file))}>
      <span class="one-line" dir="auto">{name}</span>
      <span class="soft">{size(file.sizeBytes)}</span>
      {file.form === FileForm.NAME_ONLY && <span class="small wrong">models see its name alone</span>}
    </button>
  );
}

function Picture({ sessionId, file }: { sessionId: string; file: FileRef }) {
  const [address, setAddress] = useState("");
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    const ended = new AbortController();
    let made = "";
    pictureAddress(sessionId, file, ended.signal).then(
      (url) => {
        made = url;
        if (ended.signal.aborted) URL.revokeObjectURL(url);
        else setAddress(url);
      },
      () => ended.signal.aborted || setFailed(true),
    );
    return () => {
      ended.abort();
      if (made) URL.revokeObjectURL(made);
    };
  }, [sessionId, file.sha256]);
  if (failed) return <Chip sessionId={sessionId} file={file} />;
  return (
    <button type="button" class="picture" title={`Save ${file.filename || "picture"}`} onClick={() => void attempt(() => saveFile(sessionId, file))}>
      {address ? <img src={address} alt={file.filename || "Picture"} onError={() => setFailed(true)} /> : <span class="file soft">{file.filename || "Picture"}</span>}
    </button>
  );
}
